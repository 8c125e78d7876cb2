-- Retention asks after each checkpoint whether any is old enough to go.
CREATE INDEX checkpoints_age ON checkpoints (workspace_id, created_at);

PRAGMA user_version = 4;
