-- Attribution of a turn: paths that its tools named, its tools and its subagents, as JSON lists.
ALTER TABLE turns ADD COLUMN named TEXT NOT NULL DEFAULT '[]';
ALTER TABLE turns ADD COLUMN tools TEXT NOT NULL DEFAULT '[]';
ALTER TABLE turns ADD COLUMN subagents TEXT NOT NULL DEFAULT '[]';

PRAGMA user_version = 12;
