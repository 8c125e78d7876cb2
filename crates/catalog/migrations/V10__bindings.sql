-- The workspace that an agent is bound to: checkpoints of that workspace hold its configuration and memory.
ALTER TABLE agents ADD COLUMN workspace_id TEXT REFERENCES workspaces (id);
CREATE INDEX agents_workspace ON agents (workspace_id) WHERE workspace_id IS NOT NULL;

PRAGMA user_version = 10;
