"""Pure arrays: calibration, metrics, intervals, splits, counter-based random numbers."""
