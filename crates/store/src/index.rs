//! The index: where each object is. A SQLite file, and only a cache of what the packs say.
//!
//! In: places of objects that are durable. Out: places. Rows of a pack and the length up to which it is indexed
//! change in one transaction. A crash loses at most the newest rows; opening the store finds them again.

use crate::frame::{Codec, Shape};
use crate::linux;
use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params,
};
use safepoint_model::{ObjectId, ObjectKind};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SCHEMA_VERSION: i64 = 3;
const SCHEMA: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('generation', 0);
    CREATE TABLE packs (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        indexed_bytes INTEGER NOT NULL
    );
    CREATE TABLE objects (
        id BLOB PRIMARY KEY,
        kind INTEGER NOT NULL,
        codec INTEGER NOT NULL,
        pack INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        stored_len INTEGER NOT NULL,
        raw_len INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE recent (
        id BLOB PRIMARY KEY,
        kind INTEGER NOT NULL,
        codec INTEGER NOT NULL,
        pack INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        stored_len INTEGER NOT NULL,
        raw_len INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE condemned (
        id BLOB PRIMARY KEY,
        kind INTEGER NOT NULL,
        codec INTEGER NOT NULL,
        pack INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        stored_len INTEGER NOT NULL,
        raw_len INTEGER NOT NULL
    ) WITHOUT ROWID;
";
const PLACE: &str = "o.id, o.kind, o.codec, o.stored_len, o.raw_len, o.offset, p.name";
/// Where rows are, those first that lead to an object. The condemned ones still do, but nothing new may rely on them.
const TABLES: [&str; 3] = ["recent", "objects", "condemned"];
/// Names are hashes, so a thousand new rows touch a thousand pages of a large table. They gather in a small one first.
const RECENT_ROWS_MAX: u64 = 16_384;
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// The first one to open the file reads its log from end to end, so that the log must stay short.
const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: String,
    pub(crate) at: u64,
    pub(crate) shape: Shape,
}

/// What is to be said about a pack in one transaction.
pub(crate) struct PackRows {
    pub(crate) name: String,
    /// Up to here it must be indexed already.
    pub(crate) from: u64,
    /// Up to here it is indexed afterwards.
    pub(crate) to: u64,
    /// The objects between.
    pub(crate) rows: Vec<(u64, Shape)>,
}

/// What became of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Done,
    /// The packs could not be made durable, so that nothing was added.
    NotDurable,
    /// The pack with this number in the list is indexed to here only: someone rebuilt the index meanwhile.
    Behind {
        pack: usize,
        indexed: u64,
    },
}

/// An open index.
pub(crate) struct Index {
    conn: Connection,
    identity: Option<(u64, u64)>,
    log: PathBuf,
    locking: Locking,
}

/// Who else may have the index open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Other processes, through a mapped file beside it (`-shm`).
    Shared,
    /// Nobody: what is in that file otherwise is in memory, so that a full disk cannot take it away. Others wait.
    Alone,
    /// Other processes, and nothing is written.
    ReadOnly,
}

fn connect(path: &Path, locking: Locking) -> rusqlite::Result<Connection> {
    let began = Instant::now();
    loop {
        match try_connect(path, locking) {
            // Who fails to get the file alone still keeps others from it: only closing it lets one of them go on.
            Err(error) if is_busy(&error) && locking == Locking::Alone && began.elapsed() < BUSY_WAIT => {
                let number = u64::from(std::process::id()) ^ u64::from(began.elapsed().subsec_nanos());
                std::thread::sleep(Duration::from_millis(1 + number % 16));
            }
            other => return other,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn try_connect(path: &Path, locking: Locking) -> rusqlite::Result<Connection> {
    let plain = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = match locking {
        // Without SQLITE_OPEN_URI: a path is a path, whatever its letters.
        Locking::Shared | Locking::Alone => {
            Connection::open_with_flags(path, plain | OpenFlags::SQLITE_OPEN_READ_WRITE)?
        }
        // Not even the file beside it is written, which SQLite would do where it may (https://sqlite.org/wal.html#readonly).
        Locking::ReadOnly => Connection::open_with_flags(
            format!("file:{}?readonly_shm=1", percent_encoded(path)),
            plain | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        )?,
    };
    if locking == Locking::Alone {
        // Before anything looks at the file: then the index of the log is on the heap (https://sqlite.org/wal.html#noshm).
        conn.busy_timeout(Duration::ZERO)?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        // Takes it.
        conn.query_row("PRAGMA user_version", (), |_| Ok(()))?;
    }
    conn.busy_timeout(BUSY_WAIT)?;
    Ok(conn)
}

/// A path as it stands in a URI.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let encode =
        |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

impl Index {
    /// Opens an index that is there. Nothing where it has no schema yet, or another version of it.
    pub(crate) fn open(path: &Path, locking: Locking) -> rusqlite::Result<Option<Self>> {
        let identity = linux::identity(path);
        let conn = connect(path, locking)?;
        // Closing would otherwise flush the log each time, where a small capture should cost one flush in all.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Otherwise each new value is a reason to plan the same query again.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let log = path.with_extension("db-wal");
        Ok((version == SCHEMA_VERSION).then_some(Self { conn, identity, log, locking }))
    }

    /// An empty one that no file is behind.
    pub(crate) fn in_memory() -> rusqlite::Result<Self> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch(SCHEMA)?;
        Ok(Self { conn, identity: None, log: PathBuf::new(), locking: Locking::ReadOnly })
    }

    /// Whether no file is behind it.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.identity.is_none()
    }

    /// Whether other processes have to wait as long as it is open.
    pub(crate) fn is_alone(&self) -> bool {
        self.locking == Locking::Alone
    }

    /// Gives a new, empty file its schema.
    pub(crate) fn create(path: &Path, locking: Locking) -> rusqlite::Result<()> {
        let mut conn = connect(path, locking)?;
        // Without flushes: an index that a power cut spoils while it is new is replaced like any other.
        conn.pragma_update(None, "synchronous", "OFF")?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(SCHEMA)?;
        tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        tx.commit()
    }

    /// Whether the file that was opened is still the one with the name.
    pub(crate) fn is_current(&self, path: &Path) -> bool {
        self.identity.is_some() && self.identity == linux::identity(path)
    }

    /// Every pack, with the length up to which it is indexed.
    pub(crate) fn packs(&self) -> rusqlite::Result<Vec<(String, u64)>> {
        let mut statement = self.conn.prepare_cached("SELECT name, indexed_bytes FROM packs")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// The length up to which this pack is indexed.
    pub(crate) fn indexed_bytes(&self, pack: &str) -> rusqlite::Result<Option<u64>> {
        let mut statement = self.conn.prepare_cached("SELECT indexed_bytes FROM packs WHERE name = ?1")?;
        statement.query_row([pack], |row| row.get(0)).optional()
    }

    /// Where this object is.
    pub(crate) fn find(&self, id: ObjectId) -> rusqlite::Result<Option<Place>> {
        for table in TABLES {
            let sql = format!("SELECT {PLACE} FROM {table} o JOIN packs p ON p.id = o.pack WHERE o.id = ?1");
            let found = self.conn.prepare_cached(&sql)?.query_row([id.as_bytes()], place).optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Whether there is a row for this object.
    pub(crate) fn contains(&self, id: ObjectId) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM recent WHERE id = ?1 UNION ALL SELECT 1 FROM objects WHERE id = ?1";
        self.conn.prepare_cached(sql)?.exists([id.as_bytes()])
    }

    /// Whether it names no object at all.
    pub(crate) fn is_empty(&self) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM recent) OR EXISTS (SELECT 1 FROM objects)";
        self.conn.query_row(sql, [], |row| row.get::<_, bool>(0)).map(|any| !any)
    }

    /// How many objects it names.
    pub(crate) fn count(&self) -> rusqlite::Result<u64> {
        // Each table is counted by its pages; only what may be in another one, too, is looked for.
        let sql = "SELECT (SELECT count(*) FROM objects)
            + (SELECT count(*) FROM recent r WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.id = r.id))
            + (SELECT count(*) FROM condemned c WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.id = c.id)
                AND NOT EXISTS (SELECT 1 FROM recent r WHERE r.id = c.id))";
        self.conn.query_row(sql, [], |row| row.get(0))
    }

    /// Shows every place; of an object that has several, first the one that leads to it.
    pub(crate) fn each(&self, mut visit: impl FnMut(Place)) -> rusqlite::Result<()> {
        for table in TABLES {
            let sql = format!("SELECT {PLACE} FROM {table} o JOIN packs p ON p.id = o.pack");
            let mut statement = self.conn.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                visit(place(row)?);
            }
        }
        Ok(())
    }

    /// What a pack holds that is not condemned and that no other row leads to elsewhere, in the order in which it lies there;
    /// and how many objects of it are condemned.
    pub(crate) fn of_pack(&self, pack: &str) -> rusqlite::Result<(Vec<Place>, u64)> {
        let mut places = Vec::new();
        for table in ["recent", "objects"] {
            let sql =
                format!("SELECT {PLACE} FROM {table} o JOIN packs p ON p.id = o.pack WHERE p.name = ?1");
            let mut statement = self.conn.prepare(&sql)?;
            for found in statement.query_map([pack], place)? {
                let found = found?;
                if self.find(found.shape.id)?.as_ref() == Some(&found) {
                    places.push(found);
                }
            }
        }
        places.sort_unstable_by_key(|place| place.at);
        let sql = "SELECT count(*) FROM condemned WHERE pack = (SELECT id FROM packs WHERE name = ?1)";
        Ok((places, self.conn.query_row(sql, [pack], |row| row.get(0))?))
    }

    /// From now on nothing new may rely on these objects. The token stays for as long as this is so.
    pub(crate) fn condemn(&mut self, dead: &[ObjectId], token: i64) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for table in ["objects", "recent"] {
            let copy = format!("INSERT OR REPLACE INTO condemned SELECT * FROM {table} WHERE id = ?1");
            let delete = format!("DELETE FROM {table} WHERE id = ?1");
            let (mut copy, mut delete) = (tx.prepare(&copy)?, tx.prepare(&delete)?);
            for id in dead {
                copy.execute([id.as_bytes()])?;
                delete.execute([id.as_bytes()])?;
            }
        }
        tx.execute("INSERT OR REPLACE INTO meta VALUES ('collection', ?1)", [token])?;
        tx.commit()
    }

    /// Lets condemned objects be relied on again: those that are live, or all, which ends the collection.
    pub(crate) fn absolve(&mut self, live: Option<&HashSet<ObjectId>>) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let back = "INSERT OR IGNORE INTO objects SELECT * FROM condemned";
        match live {
            None => {
                tx.execute(back, [])?;
                tx.execute("DELETE FROM condemned", [])?;
                tx.execute("DELETE FROM meta WHERE name = 'collection'", [])?;
            }
            Some(live) => {
                let condemned: Vec<[u8; 32]> = tx
                    .prepare("SELECT id FROM condemned")?
                    .query_map([], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                let mut copy = tx.prepare(&format!("{back} WHERE id = ?1"))?;
                let mut delete = tx.prepare("DELETE FROM condemned WHERE id = ?1")?;
                for id in condemned.iter().filter(|id| live.contains(&ObjectId::from_bytes(**id))) {
                    copy.execute([id])?;
                    delete.execute([id])?;
                }
            }
        }
        tx.commit()?;
        self.shorten_log();
        Ok(())
    }

    /// The token of the collection that condemned, if one has.
    pub(crate) fn collection(&self) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT value FROM meta WHERE name = 'collection'";
        self.conn.query_row(sql, [], |row| row.get(0)).optional()
    }

    /// Adds what these packs hold, all of it or nothing.
    pub(crate) fn record(&mut self, packs: &[PackRows]) -> rusqlite::Result<Recorded> {
        self.record_when(packs, || true)
    }

    /// The same for packs of which it is not yet known whether they are durable: that is asked last, just before the rows count.
    pub(crate) fn record_when(
        &mut self,
        packs: &[PackRows],
        durable: impl FnOnce() -> bool,
    ) -> rusqlite::Result<Recorded> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (number, pack) in packs.iter().enumerate() {
            let indexed: Option<u64> = tx
                .prepare_cached("SELECT indexed_bytes FROM packs WHERE name = ?1")?
                .query_row([&pack.name], |row| row.get(0))
                .optional()?;
            let indexed = indexed.unwrap_or(0);
            if indexed < pack.from {
                return Ok(Recorded::Behind { pack: number, indexed });
            }
            add_rows(&tx, pack)?;
        }
        merge(&tx)?;
        if !durable() {
            return Ok(Recorded::NotDurable);
        }
        tx.commit()?;
        self.shorten_log();
        Ok(Recorded::Done)
    }

    /// Moves a long log into the file and cuts it. SQLite itself would copy without cutting, and a process that
    /// lives for one capture would find it as long the next time. Where somebody reads just now, a later one does it.
    fn shorten_log(&self) {
        if linux::len(&self.log).is_some_and(|len| len > LOG_BYTES_MAX) {
            let _ = self.conn.busy_timeout(Duration::ZERO);
            let _ = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = self.conn.busy_timeout(BUSY_WAIT);
        }
    }

    /// Corrects the row of one object. Changes nothing if the pack of the new place is gone: it was read through a file that another
    /// process has deleted since.
    pub(crate) fn replace(&mut self, place: &Place) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pack = "SELECT id FROM packs WHERE name = ?1";
        let Some(pack) = tx.query_row(pack, [&place.pack], |row| row.get::<_, i64>(0)).optional()? else {
            return Ok(());
        };
        delete_object(&tx, place.shape.id)?;
        tx.execute(
            "INSERT INTO recent VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                place.shape.id.as_bytes(),
                place.shape.kind.code(),
                place.shape.codec as u8,
                pack,
                place.at,
                place.shape.stored_len,
                place.shape.raw_len
            ],
        )?;
        tx.commit()
    }

    /// Removes the rows of one object. Returns true if there was one.
    pub(crate) fn forget(&mut self, id: ObjectId) -> rusqlite::Result<bool> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let gone = delete_object(&tx, id)?;
        tx.commit()?;
        Ok(gone > 0)
    }

    /// Forgets what lay behind this length of a pack that was cut short. That the pack was longer stays known.
    pub(crate) fn forget_behind(&mut self, pack: &str, len: u64) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for table in TABLES {
            let sql = format!(
                "DELETE FROM {table} WHERE pack = (SELECT id FROM packs WHERE name = ?1) AND offset + stored_len > ?2"
            );
            tx.execute(&sql, params![pack, len])?;
        }
        tx.commit()
    }

    /// Takes everything out that is said about this pack.
    pub(crate) fn forget_pack(&mut self, pack: &str) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        delete_rows(&tx, pack)?;
        tx.commit()
    }

    /// Replaces everything that is said about this pack, in one transaction.
    pub(crate) fn replace_pack(&mut self, pack: &PackRows) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        delete_rows(&tx, &pack.name)?;
        add_rows(&tx, pack)?;
        merge(&tx)?;
        tx.commit()?;
        self.shorten_log();
        Ok(())
    }
}

fn delete_object(tx: &Transaction<'_>, id: ObjectId) -> rusqlite::Result<usize> {
    let mut gone = 0;
    for table in TABLES {
        gone += tx.prepare_cached(&format!("DELETE FROM {table} WHERE id = ?1"))?.execute([id.as_bytes()])?;
    }
    Ok(gone)
}

fn delete_rows(tx: &Transaction<'_>, pack: &str) -> rusqlite::Result<()> {
    for table in TABLES {
        let sql = format!("DELETE FROM {table} WHERE pack = (SELECT id FROM packs WHERE name = ?1)");
        tx.execute(&sql, [pack])?;
    }
    tx.execute("DELETE FROM packs WHERE name = ?1", [pack])?;
    Ok(())
}

fn add_rows(tx: &Transaction<'_>, pack: &PackRows) -> rusqlite::Result<()> {
    let number: i64 = tx
        .prepare_cached(
            "INSERT INTO packs (name, indexed_bytes) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET indexed_bytes = max(indexed_bytes, excluded.indexed_bytes)
             RETURNING id",
        )?
        .query_row(params![pack.name, pack.to], |row| row.get(0))?;
    // As many as this are quickest where they will end up anyway.
    let table = if pack.rows.len() as u64 > RECENT_ROWS_MAX { "objects" } else { "recent" };
    let mut insert =
        tx.prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"))?;
    for (at, shape) in &pack.rows {
        insert.execute(params![
            shape.id.as_bytes(),
            shape.kind.code(),
            shape.codec as u8,
            number,
            at,
            shape.stored_len,
            shape.raw_len
        ])?;
    }
    Ok(())
}

/// Empties the small table into the large one when it has become too large to be quick.
fn merge(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    let rows: u64 = tx.prepare_cached("SELECT count(*) FROM recent")?.query_row([], |row| row.get(0))?;
    if rows > RECENT_ROWS_MAX {
        tx.execute_batch("INSERT OR REPLACE INTO objects SELECT * FROM recent; DELETE FROM recent;")?;
    }
    Ok(())
}

fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    let number = |column: usize| row.get::<_, u8>(column);
    let unknown = |column: usize, code: u8| rusqlite::Error::IntegralValueOutOfRange(column, code.into());
    let (kind, codec) = (number(1)?, number(2)?);
    let shape = Shape {
        id: ObjectId::from_bytes(row.get(0)?),
        kind: ObjectKind::from_code(kind).ok_or_else(|| unknown(1, kind))?,
        codec: Codec::from_code(codec).ok_or_else(|| unknown(2, codec))?,
        stored_len: row.get(3)?,
        raw_len: row.get(4)?,
    };
    Ok(Place { shape, at: row.get(5)?, pack: row.get(6)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(byte: u8) -> Shape {
        let id = ObjectId::from_bytes([byte; 32]);
        Shape { id, kind: ObjectKind::Chunk, codec: Codec::Raw, stored_len: 4, raw_len: 4 }
    }

    fn with_one_pack() -> (tempfile::TempDir, Index) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        drop(linux::create(&path).unwrap());
        Index::create(&path, Locking::Shared).unwrap();
        let mut index = Index::open(&path, Locking::Shared).unwrap().unwrap();
        let rows = vec![(16, shape(1)), (20, shape(2))];
        index.record(&[PackRows { name: "one".to_owned(), from: 0, to: 24, rows }]).unwrap();
        (folder, index)
    }

    #[test]
    fn a_correction_that_names_a_deleted_pack_changes_nothing() {
        let (_folder, mut index) = with_one_pack();
        let before = index.find(shape(1).id).unwrap();
        index.replace(&Place { pack: "gone".to_owned(), at: 16, shape: shape(1) }).unwrap();
        assert_eq!(index.find(shape(1).id).unwrap(), before);
        index.replace(&Place { pack: "one".to_owned(), at: 99, shape: shape(1) }).unwrap();
        assert_eq!(index.find(shape(1).id).unwrap().map(|place| place.at), Some(99));
    }

    #[test]
    fn a_pack_that_was_cut_short_loses_its_condemned_rows_too() {
        let (_folder, mut index) = with_one_pack();
        index.condemn(&[shape(2).id], 7).unwrap();
        index.forget_behind("one", 20).unwrap();
        index.absolve(None).unwrap();
        assert!(index.contains(shape(1).id).unwrap() && !index.contains(shape(2).id).unwrap());
    }

    #[test]
    fn an_object_with_rows_in_several_tables_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        Index::create(file.path(), Locking::Shared).unwrap();
        let index = Index::open(file.path(), Locking::Shared).unwrap().unwrap();
        for (table, ids) in [("objects", 0..10u8), ("recent", 5..15), ("condemned", 3..20)] {
            for id in ids {
                let sql = format!("INSERT INTO {table} VALUES (?1, 1, 0, 1, 0, 0, 0)");
                index.conn.execute(&sql, [[id; 32]]).unwrap();
            }
        }
        assert_eq!(index.count().unwrap(), 20);
    }
}
