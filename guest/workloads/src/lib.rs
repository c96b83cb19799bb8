//! Programs that the experiments run in the guest.
