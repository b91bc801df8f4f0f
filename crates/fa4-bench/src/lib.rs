//! Times kernels against the field, judges before it times, writes and publishes results.
