"""All claims by experiment, one module per paper."""

from mislabel.analysis.claims import clean_priority, label_noise_sgd, misclassification, self_labeling, xor_clusters
from mislabel.analysis.claims.claim import Claims

CLAIMS: dict[str, Claims] = (
    clean_priority.CLAIMS
    | label_noise_sgd.CLAIMS
    | misclassification.CLAIMS
    | self_labeling.CLAIMS
    | xor_clusters.CLAIMS
)
