//! Laws of access: roles, rights, schema versions, secrets, encryption.

use crate::machine::{Machine, clone, files, fresh, read_end, scratch};
use crate::world::{Place, World, database, environment, postgres, unique};
use safepoint_model::LineId;
use safepoint_model::progress::Silent;
use safepoint_remote::{
    ExistingPacks, LiveLease, MemberGrant, NewSeal, PostgresRecords, ProjectName, Remote, RemoteEnvironment,
    RemoteError, RemoteFilter, RemoteOptions, RemoteRecords, RemoteRight, Seal, roles_sql,
};

/// Creates a role that may log in.
fn role(world: &World, rights: &[RemoteRight], line: Option<LineId>) -> (String, Remote) {
    let role = unique();
    world.sql(&format!("CREATE ROLE {role} LOGIN"));
    let grant = MemberGrant { role: role.clone(), rights: rights.to_vec(), line };
    world.remote().records().set_member(&grant).unwrap();
    let remote = world.remote_as(&world.postgres.url(&role, &world.database).parse().unwrap());
    (role, remote)
}

#[test]
fn a_role_has_the_rights_that_it_was_given_and_no_table() {
    let Some(world) = World::new(Place::Folder) else { return };
    let mut machine = Machine::new();
    let head = machine.publish(&world.remote(), &files(&[("a", "1")])).unwrap();
    let line = machine.state.as_ref().unwrap().line;
    let (reader_role, reader) = role(&world, &[RemoteRight::Read], None);
    assert!(clone(&reader, &reader.checkpoint(head.id).unwrap()).is_ok());
    let refused = machine.publish(&reader, &files(&[("a", "2")]));
    assert!(matches!(refused, Err(RemoteError::Denied { .. })), "{refused:?}");
    assert!(matches!(reader.take_over(line, "x", 1, LiveLease::Broken), Err(RemoteError::Denied { .. })));
    assert!(matches!(reader.records().delete(&[head.id]), Err(RemoteError::Denied { .. })));
    for sql in [
        "SELECT * FROM safepoint.checkpoints",
        "DELETE FROM safepoint.packs",
        "UPDATE safepoint.lines SET token = 0",
        "INSERT INTO safepoint.members SELECT 1, session_user, '{upkeep}'",
        "SELECT safepoint.create_project_1('mine', '{}')",
    ] {
        let error = world
            .postgres
            .sql(&world.database, &format!("SET SESSION AUTHORIZATION {reader_role}; {sql}"))
            .unwrap_err();
        assert!(error.to_string().contains("permission denied"), "{sql}: {error}");
    }
    // A sandbox may publish to its line alone.
    let rights = [RemoteRight::Read, RemoteRight::Publish];
    let own = LineId::from_bits(fresh());
    let (_, sandbox) = role(&world, &rights, Some(own));
    let refused = machine.publish(&sandbox, &files(&[("a", "2")]));
    assert!(matches!(refused, Err(RemoteError::Denied { .. })), "{refused:?}");
    let mut inside = Machine::new();
    inside.state = Some(sandbox.begin_line(own, inside.workspace, None, "sandbox").unwrap());
    inside.publish(&sandbox, &files(&[("a", "2")])).unwrap();
    assert!(matches!(sandbox.take_over(own, "x", 2, LiveLease::Broken), Err(RemoteError::Denied { .. })));
}

#[test]
fn a_stranger_sees_nothing() {
    let Some(world) = World::new(Place::Folder) else { return };
    let mut machine = Machine::new();
    machine.publish(&world.remote(), &files(&[("a", "1")])).unwrap();
    let role = unique();
    world.sql(&format!("CREATE ROLE {role} LOGIN"));
    let stranger = world.remote_as(&world.postgres.url(&role, &world.database).parse().unwrap());
    assert!(matches!(stranger.status(), Err(RemoteError::NoProject { project }) if project == "shop"));
    let all = stranger.checkpoints(&RemoteFilter::default());
    assert!(matches!(all, Err(RemoteError::NoProject { .. })), "{all:?}");
}

#[test]
fn rows_of_other_projects_are_hidden_by_the_rows_themselves() {
    let Some(postgres) = postgres() else { return };
    let database = database(postgres, None);
    let installer = unique();
    let project: ProjectName = "shop".parse().unwrap();
    // Roles belong to the whole server; this test alone has an owner.
    postgres.sql(&database, &format!("CREATE ROLE {installer} LOGIN")).unwrap();
    postgres.sql(&database, &roles_sql(&project, &installer, &[])).unwrap();
    let url = postgres.url(&installer, &database).parse().unwrap();
    let open = |project: &str| PostgresRecords::open(&url, project.parse().unwrap(), &environment()).unwrap();
    open("shop").migrate().unwrap();
    open("shop").create_project().unwrap();
    open("other").create_project().unwrap();
    let owner = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                 WHERE nspname = 'safepoint' AND relkind = 'r'";
    assert_eq!(postgres.sql(&database, owner).unwrap(), "safepoint_owner");
    let folder = tempfile::tempdir().unwrap();
    let bytes = format!("file://{}", folder.path().display()).parse().unwrap();
    let remote =
        Remote::open(&RemoteOptions::new(project.clone(), url.clone(), bytes), &environment()).unwrap();
    let mut machine = Machine::new();
    let head = machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    assert!(clone(&remote, &remote.checkpoint(head.id).unwrap()).is_ok());
    let member = MemberGrant { role: unique(), rights: vec![RemoteRight::Read], line: None };
    let sql = roles_sql(&"other".parse().unwrap(), &installer, std::slice::from_ref(&member));
    postgres
        .sql(&database, sql.split("-- After").nth(1).map(|part| format!("-- {part}")).unwrap().as_str())
        .unwrap();
    // As the owner of the tables, with the session of a member of the other project.
    let seen = |role: &str| {
        let sql = format!("SET SESSION AUTHORIZATION {role}; SELECT count(*) FROM safepoint.checkpoints");
        let granted = format!("GRANT safepoint_owner TO {role}");
        postgres.sql(&database, &granted).unwrap();
        postgres.sql(&database, &sql).unwrap()
    };
    assert_eq!(seen(&installer), "1");
    assert_eq!(seen(&member.role), "0");
    postgres.sql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)")).unwrap();
    postgres.sql("postgres", "DROP ROLE safepoint_owner").unwrap();
}

#[test]
fn a_database_without_schema_and_a_schema_of_another_version_are_named() {
    let Some(world) = World::new(Place::Folder) else { return };
    let empty = database(world.postgres, None);
    let url = world.postgres.url("postgres", &empty).parse().unwrap();
    let records = PostgresRecords::open(&url, world.project(), &environment()).unwrap();
    assert!(matches!(records.status(), Err(RemoteError::NotInitialized)));
    let remote = world.remote();
    let status = remote.status().unwrap();
    assert_eq!((status.incarnation, status.schema, status.durable), (1, 3, false), "fsync is off in tests");
    assert_eq!(status.rights.len(), RemoteRight::ALL.len());
    world.sql("UPDATE safepoint.meta SET protocols = '{2,3}'; DROP FUNCTION safepoint.publish_1");
    assert!(matches!(remote.status(), Err(RemoteError::ProtocolTooOld { known: 1, supported_from: 2 })));
    let refused = Machine::new().publish(&remote, &files(&[("a", "1")]));
    assert!(matches!(refused, Err(RemoteError::ProtocolTooOld { .. })), "{refused:?}");
    world.sql("UPDATE safepoint.meta SET protocols = '{0}'");
    assert!(matches!(remote.status(), Err(RemoteError::ProtocolTooNew { known: 1, supported_to: 0 })));
    let url = world.postgres.url("nobody_here", &world.database).parse().unwrap();
    let error = world.remote_as(&url).status().unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error:?}");
}

#[test]
fn an_encrypted_remote_shows_lengths_alone_and_can_be_rebuilt() {
    let Some(mut world) = World::new(Place::Folder) else { return };
    let key = NewSeal::generate();
    world.seal = Some(Seal::read(key.secret_text(), &[]).unwrap());
    let remote = world.remote();
    let mut machine = Machine::new();
    let line = LineId::from_bits(fresh());
    machine.state = Some(remote.begin_line(line, machine.workspace, Some("secret-plan"), "machine").unwrap());
    let tree = files(&[("secret-name", "secret content, long enough to be found in a pack")]);
    let first = machine.publish(&remote, &tree).unwrap();
    let second = machine.publish(&remote, &files(&[("b", "2")])).unwrap();
    assert_eq!(clone(&remote, &remote.checkpoint(first.id).unwrap()).unwrap(), tree);
    assert_eq!(remote.lines(None, Some("secret-plan")).unwrap().len(), 1);
    let mut shown = world.postgres.dump(&world.database).unwrap();
    for object in remote.bytes().list("shop/").unwrap() {
        shown.push_str(&String::from_utf8_lossy(&remote.bytes().get(&object.name, 0..object.bytes).unwrap()));
    }
    for secret in
        ["secret", &first.record.to_string(), &second.tree.to_string(), "SFPTPACK", key.secret_text()]
    {
        assert!(!shown.contains(secret), "{secret}");
    }
    let label = remote.checkpoint(second.id).unwrap().fields["label"].clone();
    assert_eq!(label, "a secret label");
    let empty = database(world.postgres, Some("safepoint_template"));
    let other = world.remote_as(&world.postgres.url("postgres", &empty).parse().unwrap());
    let report = other.rebuild(&read_end, &scratch, &Silent).unwrap();
    assert_eq!((report.restored, report.unreadable.len()), (2, 0), "{report:?}");
    assert_eq!(clone(&other, &other.checkpoint(first.id).unwrap()).unwrap(), tree);
    machine.state = Some(other.regain(machine.state.as_ref().unwrap(), "m", fresh()).unwrap());
    world.seal = Some(Seal::read(NewSeal::generate().secret_text(), &[]).unwrap());
    let stranger = world.remote();
    let error = stranger.checkpoint(first.id).unwrap_err();
    assert!(matches!(error, RemoteError::Sealed { .. }), "{error:?}");
}

#[test]
fn secrets_of_the_environment_are_in_no_message() {
    let Some(world) = World::new(Place::Folder) else { return };
    let variables = [
        ("PGPASSWORD", "hunter2-pg"),
        ("AWS_ACCESS_KEY_ID", "hunter2-id"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2-key"),
        ("AWS_SESSION_TOKEN", "hunter2-token"),
    ];
    let environment =
        RemoteEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())), None);
    let records = world.postgres.url("not_there", &world.database).parse().unwrap();
    let bytes = "s3://bucket/p?endpoint=http://127.0.0.1:1".parse().unwrap();
    let mut options = RemoteOptions::new(world.project(), records, bytes);
    options.patience = std::time::Duration::from_secs(1);
    let remote = Remote::open(&options, &environment).unwrap();
    let mut shown = format!("{options:?} {environment:?}");
    for error in [remote.status().unwrap_err(), remote.bytes().get("x", 0..1).unwrap_err()] {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        shown.push_str(&format!("{error:?}"));
        while let Some(error) = source {
            shown.push_str(&error.to_string());
            source = error.source();
        }
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(!world.postgres.server.log().contains("hunter2"));
}

#[test]
fn a_project_is_not_created_over_the_packs_of_another_database() {
    let Some(world) = World::new(Place::Folder) else { return };
    let mut machine = Machine::new();
    let head = machine.publish(&world.remote(), &files(&[("a", "1")])).unwrap();
    let empty = database(world.postgres, None);
    let url: safepoint_remote::RecordsUrl = world.postgres.url("postgres", &empty).parse().unwrap();
    let options = RemoteOptions::new(world.project(), url.clone(), world.bytes.parse().unwrap());
    let refused = Remote::init(&options, &environment(), ExistingPacks::Refused);
    assert!(matches!(refused, Err(RemoteError::NotEmpty { .. })), "{refused:?}");
    assert_eq!(
        Remote::init(&options, &environment(), ExistingPacks::Expected).unwrap(),
        0,
        "the schema is there"
    );
    assert_eq!(
        Remote::init(&options, &environment(), ExistingPacks::Refused).unwrap(),
        0,
        "and now the project"
    );
    assert_eq!(Remote::migrate(&options, &environment()).unwrap(), 0);
    let remote = world.remote_as(&url);
    assert_eq!(remote.rebuild(&read_end, &scratch, &Silent).unwrap().restored, 1);
    assert!(clone(&remote, &remote.checkpoint(head.id).unwrap()).is_ok());
}

#[test]
fn calls_work_through_a_pooler_in_transaction_mode() {
    let Some(world) = World::new(Place::Folder) else { return };
    let Some(pooler) = safepoint_testkit::servers::PgBouncer::start(world.postgres).unwrap() else {
        return crate::world::left_out("PgBouncer");
    };
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", pooler.port, world.database).parse().unwrap();
    let mut machines: Vec<(Machine, Remote)> =
        (0..4).map(|_| (Machine::new(), world.remote_as(&url))).collect();
    for round in 0..3 {
        for (machine, remote) in &mut machines {
            let tree = files(&[("a", &round.to_string())]);
            let snapshot = machine.publish(remote, &tree).unwrap();
            assert_eq!(clone(remote, &remote.checkpoint(snapshot.id).unwrap()).unwrap(), tree);
        }
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'safepoint' AND datname = current_database()";
    assert_eq!(world.sql(count), "1", "four clients share one connection");
}
