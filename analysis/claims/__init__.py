"""The papers' claims, one module per paper."""

from analysis.claim import Claim
from analysis.claims import label_noise_sgd, xor_clusters

CLAIMS: tuple[Claim, ...] = (*label_noise_sgd.CLAIMS, *xor_clusters.CLAIMS)


def claims_of(experiment: str) -> list[Claim]:
    return [claim for claim in CLAIMS if claim.experiment == experiment]
