-- Pages of checkpoints in commit order.
CREATE INDEX checkpoints_page ON checkpoints (workspace_id, seq);

PRAGMA user_version = 13;
