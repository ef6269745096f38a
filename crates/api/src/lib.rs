//! Kubernetes types that Veneer reads and writes.
