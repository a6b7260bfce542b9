"""How well a released model predicts rows that it has not seen: errors, calibration, discrimination.

Models are fitted in `regression` and `cape.learning`.
"""
