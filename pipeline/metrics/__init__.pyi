from .definitions import (
    MEASURES as MEASURES,
    Cutoff as Cutoff,
    Definition as Definition,
    Measure as Measure,
    Parameter as Parameter,
    other_names as other_names,
    parse_measure as parse_measure,
    parse_measures as parse_measures,
    register_measure as register_measure,
)
from .evaluation import Evaluation as Evaluation, evaluate as evaluate
from .paired import (
    LEVEL as LEVEL,
    PERMUTATIONS as PERMUTATIONS,
    detectable_difference as detectable_difference,
    holm as holm,
    queries_needed as queries_needed,
    randomization_test as randomization_test,
    standings as standings,
)
from .scoring import (
    compute_measures as compute_measures,
    short_rankings as short_rankings,
    tied_at_cutoffs as tied_at_cutoffs,
)
from .statistics import (
    MIN_QUERIES as MIN_QUERIES,
    estimate as estimate,
    over_collections as over_collections,
    pool_draws as pool_draws,
)
