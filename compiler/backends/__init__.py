"""Engine formats the compiler can write."""
