"""All claims by experiment, one module per paper."""

from mislabel.analysis.claims import clean_priority, label_noise_sgd, misclassification, self_labeling, xor_clusters
from mislabel.analysis.claims.claim import Claims

_PAPERS = (clean_priority, label_noise_sgd, misclassification, self_labeling, xor_clusters)
CLAIMS: dict[str, Claims] = {experiment: claims for paper in _PAPERS for experiment, claims in paper.CLAIMS.items()}
