//! Bit-exact numerics: scalar arithmetic, conversions, the MUFU models and the matrix unit's dot product.
