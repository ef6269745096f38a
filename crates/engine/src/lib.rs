//! What would be scheduled, launched and consolidated, at what price, and why.
