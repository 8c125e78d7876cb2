-- A value can be the difference to its base: `base` and `bytes`, which a program of an older schema would take for the
-- value itself. No table changes.
PRAGMA user_version = 17;
