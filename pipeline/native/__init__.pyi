from .vectors import (
    Fp32Model as Fp32Model,
    Fp32Splade as Fp32Splade,
    PackedModel as PackedModel,
    network_arrays as network_arrays,
    network_matrices as network_matrices,
)
