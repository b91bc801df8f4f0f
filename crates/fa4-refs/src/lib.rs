//! Other people's kernels at arm's length: adapters, a child process per device, a versioned protocol.
