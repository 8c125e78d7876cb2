-- Rows that a program of schema 18 wrote: a pinned checkpoint, a rollback to it that is not settled and rescued an edit,
-- and one that was refused.
INSERT INTO workspaces (seq, id, root, name, created_at, head, removed_at)
VALUES (1, '01KA3B90000000000000000001', X'2F686F6D652F736F6D65626F64792F6F646420FF', 'project', 1763193600000000, '01KA3B90000000000000000001', NULL);
INSERT INTO checkpoints (seq, id, workspace_id, created_at, label, kind, reason, scope, phase, role, plan_id, session_id, step_index, state_hash, state_snapshot, progress, sandbox_ref, source_tool, decision_id, commit_sha, commit_message, tags, pinned, rollback_used, rollback_count, size_bytes, files, parent, integrity, warnings)
VALUES (1, '01KA3B90000000000000000001', '01KA3B90000000000000000001', 1763193601000000, 'before', 'manual', 'manual', 'project', 'implement', NULL, 'plan', 'session', 2, X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525', X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525', '{"tasks_completed":0,"decisions_made":0,"files_modified":0,"files_created":0,"tests_passing":42,"tests_failing":0}', NULL, 'tool', NULL, NULL, NULL, '["v1"]', 1, 1, 1, 10, '{"count":3,"bytes":100,"added":3,"modified":0,"removed":0}', NULL, X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', '["careful"]');
INSERT INTO checkpoints (seq, id, workspace_id, created_at, label, kind, reason, scope, phase, role, plan_id, session_id, step_index, state_hash, state_snapshot, progress, sandbox_ref, source_tool, decision_id, commit_sha, commit_message, tags, pinned, rollback_used, rollback_count, size_bytes, files, parent, integrity, warnings)
VALUES (2, '01KA3B90000000000000000002', '01KA3B90000000000000000001', 1763193602000000, NULL, 'automatic', 'pre_risky_operation', 'project', NULL, 'safety', NULL, NULL, NULL, NULL, NULL, '{"tasks_completed":0,"decisions_made":0,"files_modified":0,"files_created":0,"tests_passing":0,"tests_failing":0}', NULL, NULL, NULL, NULL, NULL, '[]', 0, 0, 0, 10, '{"count":0,"bytes":0,"added":0,"modified":0,"removed":0}', '01KA3B90000000000000000001', X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', '[]');
INSERT INTO checkpoints (seq, id, workspace_id, created_at, label, kind, reason, scope, phase, role, plan_id, session_id, step_index, state_hash, state_snapshot, progress, sandbox_ref, source_tool, decision_id, commit_sha, commit_message, tags, pinned, rollback_used, rollback_count, size_bytes, files, parent, integrity, warnings)
VALUES (3, '01KA3B90000000000000000003', '01KA3B90000000000000000001', 1763193603000000, NULL, 'automatic', 'error_recovery', 'project', NULL, 'rescue', NULL, NULL, NULL, NULL, NULL, '{"tasks_completed":0,"decisions_made":0,"files_modified":0,"files_created":0,"tests_passing":0,"tests_failing":0}', NULL, NULL, NULL, NULL, NULL, '[]', 0, 0, 0, 10, '{"count":0,"bytes":0,"added":0,"modified":0,"removed":0}', NULL, X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', '[]');
INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
VALUES ('01KA3B90000000000000000001', 0, 'files', '01KA3B90000000000000000001', X'CC4D2F352C7234F2ED7565F71188FB410E6188315AA6E19602AA657A4B5B6B08');
INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
VALUES ('01KA3B90000000000000000002', 0, 'files', '01KA3B90000000000000000001', X'CC4D2F352C7234F2ED7565F71188FB410E6188315AA6E19602AA657A4B5B6B08');
INSERT INTO checkpoint_parts (checkpoint_id, position, kind, key, document)
VALUES ('01KA3B90000000000000000003', 0, 'files', '01KA3B90000000000000000001', X'CC4D2F352C7234F2ED7565F71188FB410E6188315AA6E19602AA657A4B5B6B08');
INSERT INTO rollbacks (seq, id, workspace_id, verb, answers, from_checkpoint, to_checkpoint, safety_checkpoint, strategy, paths, state, created_at, finished_at, actor, restored_files_count, removed_files_count, changed_paths, error)
VALUES (1, '01KA3B90000000000000000001', '01KA3B90000000000000000001', 'rollback', NULL, '01KA3B90000000000000000001', '01KA3B90000000000000000001', '01KA3B90000000000000000002', 'selective', '[{"bytes":"b2RkIP8="}]', 'done', 1763193630000000, 1763193632000000, 'somebody', 2, 0, X'C16C7738EB4DB7C3C12F182C1E3E042160701466C3AF636570C7BBA110C6EDCE', NULL);
INSERT INTO rollbacks (seq, id, workspace_id, verb, answers, from_checkpoint, to_checkpoint, safety_checkpoint, strategy, paths, state, created_at, finished_at, actor, restored_files_count, removed_files_count, changed_paths, error)
VALUES (2, '01KA3B90000000000000000002', '01KA3B90000000000000000001', 'rollback', NULL, NULL, '01KA3B90000000000000000001', NULL, 'immediate', '[]', 'refused', 1763193630000000, NULL, 'somebody', 0, 0, NULL, 'the plan is applied');
INSERT INTO rollback_steps (rollback_seq, position, step)
VALUES (1, 0, '{"path":"crates/some/folder/file-000000.rs","old":{"entry":"AQEOZmlsZS0wMDAwMDAucnOkA+gH6AcAgIDw45jPj/gwAyzIsjrRaLMwpbBUw5mjARgrY6Vzhczp290Q2KExPMp2"},"new":{"entry":"AQEOZmlsZS0wMDAwMDAucnOkA+gH6AcAgIDw45jPj/gwDkFOum/t1Km+HayKA6ozTVK/Ojs/WvpsV/KkAWyscPKJ"},"how":{"swap":{"slot":0}}}');
INSERT INTO rollback_steps (rollback_seq, position, step)
VALUES (1, 1, '{"path":"crates/some/folder/file-000001.rs","old":{"entry":"AQEOZmlsZS0wMDAwMDEucnOkA+gH6AcAgIDw45jPj/gwAyzIsjrRaLMwpbBUw5mjARgrY6Vzhczp290Q2KExPMp2"},"new":{"entry":"AQEOZmlsZS0wMDAwMDEucnOkA+gH6AcAgIDw45jPj/gwDgh4gn/bOEsrZkkGFvpM4xrMSL3D/+v8a0+MVpya3L5s"},"how":{"swap":{"slot":1}}}');
INSERT INTO rescued (rollback_id, position, path, checkpoint_id, why)
VALUES ('01KA3B90000000000000000001', 0, X'6F646420FF', '01KA3B90000000000000000003', 'edited meanwhile');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (1, 1763193600000000, 'workspace.registered', '01KA3B90000000000000000001', '{"name":"project","root":"/home/somebody/odd �"}', X'0000000000000000000000000000000000000000000000000000000000000000', X'F023C4337E893EF6D550F547D1F3642233203825E79E4CE2C1B2B12C799D43EC');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (2, 1763193601000000, 'checkpoint.created', '01KA3B90000000000000000001', '{"integrity":"040ef1a4e8679a6af457254fa0cb9115bd7819f4a65d2c58640782bf52e146fc","kind":"manual","label":"before","parent":null,"plan_id":"plan","reason":"manual","role":null,"session_id":"session","workspace_id":"01KA3B90000000000000000001"}', X'F023C4337E893EF6D550F547D1F3642233203825E79E4CE2C1B2B12C799D43EC', X'C87EC04CB2E5FC6DB23A67D280625C162C0A184189DF5DC4751E2FBA226607F1');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (3, 1763193602000000, 'checkpoint.pinned', '01KA3B90000000000000000001', '{}', X'C87EC04CB2E5FC6DB23A67D280625C162C0A184189DF5DC4751E2FBA226607F1', X'7029D39BBF16304434C831D097EE085C8368ABDDE54BC5475633183D1DE090AC');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (4, 1763193602000000, 'checkpoint.created', '01KA3B90000000000000000002', '{"integrity":"040ef1a4e8679a6af457254fa0cb9115bd7819f4a65d2c58640782bf52e146fc","kind":"automatic","label":null,"parent":"01KA3B90000000000000000001","plan_id":null,"reason":"pre_risky_operation","role":"safety","session_id":null,"workspace_id":"01KA3B90000000000000000001"}', X'7029D39BBF16304434C831D097EE085C8368ABDDE54BC5475633183D1DE090AC', X'26C357BB510EAA8422CCF5DF782D9F5D238539D98CD579A75A00520F0E4CF0C6');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (5, 1763193630000000, 'rollback.began', '01KA3B90000000000000000001', '{"actor":"somebody","answers":null,"error":null,"from":"01KA3B90000000000000000001","safety_checkpoint":"01KA3B90000000000000000002","steps":2,"strategy":"selective","to":"01KA3B90000000000000000001","verb":"rollback","workspace_id":"01KA3B90000000000000000001"}', X'26C357BB510EAA8422CCF5DF782D9F5D238539D98CD579A75A00520F0E4CF0C6', X'20F46546E2B10E4FBF7835AD5B524FA311994FF705483A61AD46D3DF8047F4E5');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (6, 1763193603000000, 'checkpoint.created', '01KA3B90000000000000000003', '{"integrity":"040ef1a4e8679a6af457254fa0cb9115bd7819f4a65d2c58640782bf52e146fc","kind":"automatic","label":null,"parent":null,"plan_id":null,"reason":"error_recovery","role":"rescue","session_id":null,"workspace_id":"01KA3B90000000000000000001"}', X'20F46546E2B10E4FBF7835AD5B524FA311994FF705483A61AD46D3DF8047F4E5', X'DB965431FACEB1A1DD6547351856BE90A2E02FA37D4350296827F34A79E39063');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (7, 1763193631000000, 'rollback.rescued', '01KA3B90000000000000000001', '{"checkpoint":"01KA3B90000000000000000003","path":{"bytes":"b2RkIP8="},"why":"edited meanwhile"}', X'DB965431FACEB1A1DD6547351856BE90A2E02FA37D4350296827F34A79E39063', X'E132CAB20CE696E0DF45696626EB5CAA6E92DE8DFB12DE8EAD0B1FC2E43B5E1B');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (8, 1763193632000000, 'rollback.done', '01KA3B90000000000000000001', '{"changed_paths":"c16c7738eb4db7c3c12f182c1e3e042160701466c3af636570c7bba110c6edce","error":null,"removed_files_count":0,"restored_files_count":2}', X'E132CAB20CE696E0DF45696626EB5CAA6E92DE8DFB12DE8EAD0B1FC2E43B5E1B', X'AE2F2D4BB6D5028AF16F4FDDF86921F091F75B149386443B1E70787284C061AE');
INSERT INTO events (seq, at, kind, subject, payload, previous, hash)
VALUES (9, 1763193630000000, 'rollback.refused', '01KA3B90000000000000000002', '{"actor":"somebody","answers":null,"error":"the plan is applied","from":null,"safety_checkpoint":null,"steps":0,"strategy":"immediate","to":"01KA3B90000000000000000001","verb":"rollback","workspace_id":"01KA3B90000000000000000001"}', X'AE2F2D4BB6D5028AF16F4FDDF86921F091F75B149386443B1E70787284C061AE', X'3210F60AE3D514D15172F68DEB36350FB7BE1E190C20DC2B59AD0CEDD508160D');
UPDATE event_head SET seq = 9, hash = X'3210F60AE3D514D15172F68DEB36350FB7BE1E190C20DC2B59AD0CEDD508160D';
-- A plan whose first step failed.
INSERT INTO plans (seq, id, workspace_id, title, state, version, created_at, updated_at, head)
VALUES (1, 'limits', '01KA3B90000000000000000001', 'Add rate limiting', 'failed', 5, 1763193602000000, 1763193600000000, '{"format":1,"id":"limits","title":"Add rate limiting","state":"failed","milestones":{"on":["before_step","after_subplan","on_error"]},"sandbox":{"kind":"in-place","id":null},"steps":[],"decisions":[],"context":{},"outputs":{}}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'context', 0, '{"key":"db","value":"postgres"}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'decision', 0, '{"id":"01KA38EE000QJS22HDXJ4G4Q61","question":"Which","choice":"this","alternatives":[],"rationale":null,"parent":null,"depends_on":[],"step":null,"made_at":"2025-11-15T08:00:01.000000Z"}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'output', 0, '{"key":"url","value":"x"}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'step', 0, '{"path":"migrate","spec":{"id":"migrate","on_interrupt":"ask"},"state":"failed","attempts":1,"started_at":"2025-11-15T08:00:03.000000Z","finished_at":"2025-11-15T08:00:00.000000Z","error":"no","output":null,"log":null}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'step', 1, '{"path":"api","spec":{"id":"api","on_interrupt":"ask"},"state":"pending","attempts":0,"started_at":null,"finished_at":null,"error":null,"output":null,"log":null}');
INSERT INTO plan_items (plan_seq, kind, position, body)
VALUES (1, 'step', 2, '{"path":"api/handlers","spec":{"id":"handlers","on_interrupt":"ask"},"state":"pending","attempts":0,"started_at":null,"finished_at":null,"error":null,"output":null,"log":null}');
INSERT INTO plan_notes (plan_seq, number, kind, version, at, body)
VALUES (1, 0, 'error', 4, 1763193600000000, '{"error":"no","step":"migrate"}');
INSERT INTO plan_checkpoints (checkpoint_id, plan_seq, version, healthy)
VALUES ('01KA3B90000000000000000001', 1, 1, 1);
-- A session that waits.
INSERT INTO sessions (seq, id, request, status, paused_from, configuration, git_context, tasks_completed, tasks_failed, decisions_made, checkpoints_created, error_recoveries, created_at, updated_at, finished_at)
VALUES (1, '0193a6b4-8000-7000-8000-000000000001', 'Add rate limiting', 'paused', 'implementing', '{"model":"large"}', '{"branch":"main"}', 3, 1, 2, 4, 1, 1763193600000000, 1763193609000000, NULL);
UPDATE checkpoints SET event = seq, record = X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525' WHERE seq = 1;
INSERT INTO tombstones (checkpoint_id, integrity, document) VALUES ('01KA3B90000000000000000009', X'', NULL);
INSERT INTO stale_records (record, checkpoint_id) VALUES (X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3526', '01KA3B90000000000000000009');
UPDATE rollbacks SET parts = '["files"]' WHERE seq = 1;
INSERT INTO rollback_parts (rollback_id, position, kind, key, program, note)
VALUES ('01KA3B90000000000000000001', 0, 'example.keys', 'app', 'example', X'01');
-- An agent that is bound to the workspace, and one that is not.
INSERT INTO agents (seq, name, settings, created_at, updated_at, workspace_id)
VALUES (1, 'claude', '{"model":"large"}', 1763193600000000, 1763193601000000, '01KA3B90000000000000000001');
INSERT INTO agents (seq, name, settings, created_at, updated_at, workspace_id)
VALUES (2, 'codex', '{}', 1763193600000000, 1763193601000000, NULL);
INSERT INTO agent_paths (agent_seq, position, kind, path) VALUES (1, 0, 'memory', X'686F6D652F6D656D6F7279');
-- A turn that is over, one that is open, and a rollback that its session was not told about yet.
INSERT INTO turns (seq, workspace_id, number, agent, session_id, key, prompt, model, permission_mode, opened_at, closed_at, before_id, after_id, commands, changes, not_covered, named, tools, subagents)
VALUES (1, '01KA3B90000000000000000001', 1, 'claude', '0193a6b4-8000-7000-8000-000000000001', 'p1', 'make the tests pass', 'large', 'default', 1763193600000000, 1763193601000000, NULL, NULL, 2, '[3,14,1]', NULL, '["src/main.rs"]', '["Bash","Write"]', '["helper"]');
INSERT INTO turns (seq, workspace_id, number, agent, session_id, prompt, opened_at, not_covered)
VALUES (2, '01KA3B90000000000000000001', 2, 'claude', '0193a6b4-8000-7000-8000-000000000001', 'go on', 1763193602000000, 'the disk is full');
INSERT INTO hook_sessions (session_id, workspace_id, agent, seen_at, ended_at)
VALUES ('0193a6b4-8000-7000-8000-000000000001', '01KA3B90000000000000000001', 'claude', 1763193602000000, NULL);
INSERT INTO hook_events (key, at) VALUES ('one', 1763193602000000);
INSERT INTO hook_notes (session_id, rollback_id) VALUES ('0193a6b4-8000-7000-8000-000000000001', '01KA3B90000000000000000001');
-- A thread with two states; the second shares the first piece of its messages with the first.
INSERT INTO thread (seq, workspace_id, id, serializer, version, document, ttl, created_at, updated_at)
VALUES (1, '01KA3B90000000000000000001', 't1', 'jsonplus', 3, NULL, 86400000000, 1763193600000000, 1763193602000000);
INSERT INTO thread_value (seq, thread_seq, ns, channel, version, encoding, size, hash, bytes, base, shared, depth, pieces)
VALUES (1, 1, '', NULL, NULL, 'json', 2, X'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC', X'007B7D', NULL, 0, 0, NULL);
INSERT INTO thread_value (seq, thread_seq, ns, channel, version, encoding, size, hash, bytes, base, shared, depth, pieces)
VALUES (2, 1, '', 'messages', 'v1', 'json', 4, X'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC', NULL, NULL, 0, 0, X'0104482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525');
INSERT INTO thread_value (seq, thread_seq, ns, channel, version, encoding, size, hash, bytes, base, shared, depth, pieces)
VALUES (3, 1, '', 'messages', 'v2', 'json', 8, X'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC', NULL, 2, 1, 1, X'0104482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525');
-- The difference to the value before: 3 new bytes, and a range of the value before from 1 on.
INSERT INTO thread_value (seq, thread_seq, ns, channel, version, encoding, size, hash, bytes, base, shared, depth, pieces)
VALUES (4, 1, '', 'messages', 'v3', 'json', 5, X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525', X'00036162630102', 3, 0, 2, NULL);
INSERT INTO thread_state (seq, thread_seq, ns, id, parent, run_id, metadata, body, channels, files, hidden, created_at)
VALUES (1, 1, '', 's1', NULL, 'r1', '{"source":"input","step":-1}', 1, '{"messages":["v1",2]}', '01KA3B90000000000000000001', 0, 1763193601000000);
INSERT INTO thread_state (seq, thread_seq, ns, id, parent, run_id, metadata, body, channels, files, hidden, created_at)
VALUES (2, 1, '', 's2', 's1', 'r1', '{"source":"loop","step":0}', 1, '{"empty":["v1",null],"messages":["v2",3]}', NULL, 0, 1763193602000000);
INSERT INTO thread_write (thread_seq, ns, state_id, task_id, idx, channel, value, task_path)
VALUES (1, '', 's2', 'task', 0, 'messages', 1, '');
INSERT INTO thread_head (thread_seq, ns, state_seq) VALUES (1, '', 2);
INSERT INTO thread_chunk (id, bytes) VALUES (X'482A42489F769EA81ABC6E15AE00330D96357A66B2240D5FCAEE53B311CA3525', X'0061626364');
-- An open attempt without a result, and a metric that waits for the next checkpoint.
INSERT INTO workspaces (seq, id, root, name, created_at, head, removed_at, kind)
VALUES (90, '01KA3B90000000000000000090', X'2F726F6F6D2F74726565', 'tree', 1763193600000000, NULL, NULL, 'attempt');
INSERT INTO attempts (seq, id, workspace_id, place_id, number, name, kind, room, state, base, result, run, created_at, closed_at, is_removed)
VALUES (1, '01KA3B90000000000000000091', '01KA3B90000000000000000001', '01KA3B90000000000000000090', 1, 'try-1', 'overlay', X'2F726F6F6D', 'open', '01KA3B90000000000000000001', NULL, '{"command":["true"],"exit_status":0,"verified":null,"tests":null,"milliseconds":5}', 1763193600000000, NULL, 0);
INSERT INTO metrics (workspace_id, name, value) VALUES ('01KA3B90000000000000000090', 'accuracy', 0.5);
-- A remote with the line of the workspace, and one published checkpoint.
INSERT INTO remotes (seq, id, project, records, bytes, identity, added_at)
VALUES (1, 'team', 'shop', 'postgres:///safepoint', 'file:///srv/packs', X'2F6B6579FF', 1763193600000000);
INSERT INTO remote_lines (remote, workspace_id, id, state, base, base_content, pending)
VALUES ('team', '01KA3B90000000000000000001', '01KA3B90000000000000000095', '{"seq":1}', '01KA3B90000000000000000001', X'040EF1A4E8679A6AF457254FA0CB9115BD7819F4A65D2C58640782BF52E146FC', NULL);
INSERT INTO remote_published (remote, checkpoint_id, line, number)
VALUES ('team', '01KA3B90000000000000000001', '01KA3B90000000000000000095', 1);
-- A line that another writer took over, and a purge that the remote has not carried out.
INSERT INTO remote_left (remote, workspace_id, line, left_at)
VALUES ('team', '01KA3B90000000000000000001', '01KA3B90000000000000000096', 1763193650000000);
INSERT INTO remote_purges (seq, remote, workspace_id, paths, at)
VALUES (1, 'team', '01KA3B90000000000000000001', '[".env",{"bytes":"b2RkIP8="}]', 1763193650000000);
