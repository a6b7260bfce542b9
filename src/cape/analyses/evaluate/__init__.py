"""How well a released model predicts rows that it has not seen: errors, calibration, discrimination.

Not here: the fit of models (`regression`, `survival`, `cape.learning`), and who is held out (`data`).
"""
