//! Index: a SQLite file with the position of each object; a cache of the packs.
//!
//! In: positions of durable objects. Out: positions. The rows of a pack and its indexed length change in one
//! transaction. A crash loses at most the newest rows; opening the store restores them.

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
/// Tables with rows, in lookup order. Condemned rows still find their objects, but new captures must not
/// reference them.
const TABLES: [&str; 3] = ["recent", "objects", "condemned"];
/// Row count above which `recent` is merged. Names are hashes, so a thousand new rows touch a thousand pages
/// of a large table; they are collected in a small one first.
const RECENT_ROWS_MAX: u64 = 16_384;
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// The first process to open the file reads its whole log, so the log must stay short.
const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// Position of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: String,
    pub(crate) at: u64,
    pub(crate) shape: Shape,
}

/// Rows of a pack to be written in one transaction.
pub(crate) struct PackRows {
    pub(crate) name: String,
    /// Required indexed length before the transaction.
    pub(crate) from: u64,
    /// Indexed length after the transaction.
    pub(crate) to: u64,
    /// Objects in that range.
    pub(crate) rows: Vec<(u64, Shape)>,
}

/// Result of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Done,
    /// The packs could not be made durable; no row was added.
    NotDurable,
    /// The pack with this number is indexed only up to this offset: another process rebuilt the index.
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

/// Sharing mode of an open index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Shared with other processes through a mapped file (`-shm`).
    Shared,
    /// Exclusive: the content of that file is in memory, so that a full disk cannot break it. Other processes
    /// wait.
    Alone,
    /// Shared with other processes; no file is written.
    ReadOnly,
}

fn connect(path: &Path, locking: Locking) -> rusqlite::Result<Connection> {
    let began = Instant::now();
    loop {
        match try_connect(path, locking) {
            // A failed exclusive open still blocks other processes; only closing the connection lets one of
            // them proceed.
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
        // Without SQLITE_OPEN_URI: the path is never parsed as a URI.
        Locking::Shared | Locking::Alone => {
            Connection::open_with_flags(path, plain | OpenFlags::SQLITE_OPEN_READ_WRITE)?
        }
        // Prevents writes to the `-shm` file, which SQLite makes if it can
        // (https://sqlite.org/wal.html#readonly).
        Locking::ReadOnly => Connection::open_with_flags(
            format!("file:{}?readonly_shm=1", percent_encoded(path)),
            plain | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        )?,
    };
    if locking == Locking::Alone {
        // Set before the first access: then the WAL index is on the heap (https://sqlite.org/wal.html#noshm).
        conn.busy_timeout(Duration::ZERO)?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        // Acquires the lock.
        conn.query_row("PRAGMA user_version", (), |_| Ok(()))?;
    }
    conn.busy_timeout(BUSY_WAIT)?;
    Ok(conn)
}

/// Encodes a path for a URI.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let encode =
        |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

impl Index {
    /// Opens an existing index. Returns `None` if it has no schema or another schema version.
    pub(crate) fn open(path: &Path, locking: Locking) -> rusqlite::Result<Option<Self>> {
        let identity = linux::identity(path);
        let conn = connect(path, locking)?;
        // Closing would otherwise flush the log each time; a small capture must cost one flush in total.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Otherwise each new value causes the same query to be planned again.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let log = path.with_extension("db-wal");
        Ok((version == SCHEMA_VERSION).then_some(Self { conn, identity, log, locking }))
    }

    /// Creates an empty index without a file.
    pub(crate) fn in_memory() -> rusqlite::Result<Self> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch(SCHEMA)?;
        Ok(Self { conn, identity: None, log: PathBuf::new(), locking: Locking::ReadOnly })
    }

    /// Returns true if the index has no file.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.identity.is_none()
    }

    /// Returns true if other processes must wait while it is open.
    pub(crate) fn is_alone(&self) -> bool {
        self.locking == Locking::Alone
    }

    /// Creates the schema in a new, empty file.
    pub(crate) fn create(path: &Path, locking: Locking) -> rusqlite::Result<()> {
        let mut conn = connect(path, locking)?;
        // No flushes: an index that a power cut damages during creation is replaced like any other.
        conn.pragma_update(None, "synchronous", "OFF")?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(SCHEMA)?;
        tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        tx.commit()
    }

    /// Returns the identity of the opened file, or `None` without a file.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        self.identity
    }

    /// Returns true if the path still refers to the opened file.
    pub(crate) fn is_current(&self, path: &Path) -> bool {
        self.identity.is_some() && self.identity == linux::identity(path)
    }

    /// Returns every pack with its indexed length.
    pub(crate) fn packs(&self) -> rusqlite::Result<Vec<(String, u64)>> {
        let mut statement = self.conn.prepare_cached("SELECT name, indexed_bytes FROM packs")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Returns the indexed length of a pack.
    pub(crate) fn indexed_bytes(&self, pack: &str) -> rusqlite::Result<Option<u64>> {
        let mut statement = self.conn.prepare_cached("SELECT indexed_bytes FROM packs WHERE name = ?1")?;
        statement.query_row([pack], |row| row.get(0)).optional()
    }

    /// Returns the position of an object.
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

    /// Returns true if the object has a row.
    pub(crate) fn contains(&self, id: ObjectId) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM recent WHERE id = ?1 UNION ALL SELECT 1 FROM objects WHERE id = ?1";
        self.conn.prepare_cached(sql)?.exists([id.as_bytes()])
    }

    /// Returns true if the index names no object.
    pub(crate) fn is_empty(&self) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM recent) OR EXISTS (SELECT 1 FROM objects)";
        self.conn.query_row(sql, [], |row| row.get::<_, bool>(0)).map(|any| !any)
    }

    /// Returns the number of objects.
    pub(crate) fn count(&self) -> rusqlite::Result<u64> {
        // Each table is counted by its pages; only possible duplicates are looked up.
        let sql = "SELECT (SELECT count(*) FROM objects)
            + (SELECT count(*) FROM recent r WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.id = r.id))
            + (SELECT count(*) FROM condemned c WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.id = c.id)
                AND NOT EXISTS (SELECT 1 FROM recent r WHERE r.id = c.id))";
        self.conn.query_row(sql, [], |row| row.get(0))
    }

    /// Visits every position; the authoritative one of each object comes first.
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

    /// Returns the objects of a pack that are not condemned and have no earlier row elsewhere, in pack order,
    /// and the number of its condemned objects.
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

    /// Condemns objects: no new capture may reference them. The token stays as long as they are condemned.
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

    /// Ends the condemnation of live objects, or of all objects, which ends the collection.
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

    /// Returns the token of the current collection, if any.
    pub(crate) fn collection(&self) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT value FROM meta WHERE name = 'collection'";
        self.conn.query_row(sql, [], |row| row.get(0)).optional()
    }

    /// Records the objects of these packs in one transaction.
    pub(crate) fn record(&mut self, packs: &[PackRows]) -> rusqlite::Result<Recorded> {
        self.record_when(packs, || true)
    }

    /// Does the same for packs that may not be durable yet: `durable` is called last, just before the commit.
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

    /// Checkpoints and truncates a long log. SQLite itself copies without truncating, and a process that
    /// makes a single capture would find it equally long the next time. If another process is reading, a
    /// later call does it.
    fn shorten_log(&self) {
        if linux::len(&self.log).is_some_and(|len| len > LOG_BYTES_MAX) {
            let _ = self.conn.busy_timeout(Duration::ZERO);
            let _ = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = self.conn.busy_timeout(BUSY_WAIT);
        }
    }

    /// Corrects the row of an object. Changes nothing if the pack of the new position is gone: another
    /// process deleted the file while it was read.
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

    /// Deletes the rows behind this length of a truncated pack. The former length stays recorded.
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

    /// Deletes all rows of a pack.
    pub(crate) fn forget_pack(&mut self, pack: &str) -> rusqlite::Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        delete_rows(&tx, pack)?;
        tx.commit()
    }

    /// Replaces all rows of a pack in one transaction.
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
    // This many rows are faster to insert into their final table.
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

/// Moves the rows of the small table to the large one when it is too large to be fast.
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
