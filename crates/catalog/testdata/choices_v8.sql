-- Rows beside those of schema_v8.sql: rollbacks whose choice schema 8 did not record. Migration 9 derives it.
INSERT INTO checkpoints (seq, id, workspace_id, created_at, kind, reason, scope, role, progress, tags, pinned, rollback_used, rollback_count, size_bytes, files, integrity, warnings)
VALUES (4, '01KA3B90000000000000000004', '01KA3B90000000000000000001', 1763193604000000, 'automatic', 'pre_risky_operation', 'project', 'safety', '{"tasks_completed":0,"decisions_made":0,"files_modified":0,"files_created":0,"tests_passing":0,"tests_failing":0}', '[]', 0, 0, 0, 10, '{"count":0,"bytes":0,"added":0,"modified":0,"removed":0}', X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', '[]');
INSERT INTO checkpoints (seq, id, workspace_id, created_at, kind, reason, scope, role, progress, tags, pinned, rollback_used, rollback_count, size_bytes, files, integrity, warnings)
VALUES (5, '01KA3B90000000000000000005', '01KA3B90000000000000000001', 1763193605000000, 'automatic', 'pre_risky_operation', 'project', 'safety', '{"tasks_completed":0,"decisions_made":0,"files_modified":0,"files_created":0,"tests_passing":0,"tests_failing":0}', '[]', 0, 0, 0, 10, '{"count":0,"bytes":0,"added":0,"modified":0,"removed":0}', X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', '[]');
INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
VALUES ('01KA3B90000000000000000004', 0, 'session', '0193a6b4-8000-7000-8000-000000000001', X'CC4D2F352C7234F2ED7565F71188FB410E6188315AA6E19602AA657A4B5B6B08');
INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
VALUES ('01KA3B90000000000000000005', 0, 'plan', 'limits', X'CC4D2F352C7234F2ED7565F71188FB410E6188315AA6E19602AA657A4B5B6B08');
-- The folder of the repository; a session alone; a plan alone; a plan with everything else; a plan with others.
INSERT INTO rollbacks (seq, id, workspace_id, verb, to_checkpoint, safety_checkpoint, strategy, paths, state, created_at, actor, restored_files_count, removed_files_count, together)
VALUES (11, '01KA3B90000000000000000011', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000002', 'selective', '[".git"]', 'settled', 1763193640000000, 'somebody', 0, 0, NULL),
       (12, '01KA3B90000000000000000012', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000004', 'selective', '[]', 'settled', 1763193640000000, 'somebody', 0, 0, NULL),
       (13, '01KA3B90000000000000000013', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000005', 'selective', '[]', 'settled', 1763193640000000, 'somebody', 0, 0, NULL),
       (14, '01KA3B90000000000000000014', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000005', 'immediate', '[]', 'settled', 1763193640000000, 'somebody', 0, 0, NULL),
       (15, '01KA3B90000000000000000015', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000005', 'selective', '[]', 'settled', 1763193640000000, 'somebody', 0, 0, '01KA3B90000000000000000015'),
       (16, '01KA3B90000000000000000016', '01KA3B90000000000000000001', 'rollback', '01KA3B90000000000000000001', '01KA3B90000000000000000005', 'selective', '["src"]', 'settled', 1763193640000000, 'somebody', 0, 0, NULL);
