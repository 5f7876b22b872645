from .slices import write_slice as write_slice
