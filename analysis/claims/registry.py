"""The papers' claims, one module per paper."""

from mislabel.analysis.claims import clean_priority, label_noise_sgd, misclassification, self_labeling, xor_clusters
from mislabel.analysis.claims.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    *clean_priority.CLAIMS,
    *label_noise_sgd.CLAIMS,
    *misclassification.CLAIMS,
    *self_labeling.CLAIMS,
    *xor_clusters.CLAIMS,
)


def claims_of(experiment: str) -> list[Claim]:
    return [claim for claim in CLAIMS if claim.experiment == experiment]
