"""The RobustRL operator: a pure brain (`analyze`, `plan`) and the bodies that carry out what it decides."""
