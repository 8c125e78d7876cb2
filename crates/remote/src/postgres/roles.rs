//! SQL that an administrator of the database runs once: the owner of the schema, and a role per member.

use super::migrate::OWNER;
use crate::name::ProjectName;
use crate::records::{MemberGrant, RemoteRight};
use std::fmt::Write;

/// Returns the SQL for an administrator: creates the owner of the schema and the roles, and lets `installer`
/// run `remote init`. Passwords are left to the administrator.
pub fn roles_sql(project: &ProjectName, installer: &str, members: &[MemberGrant]) -> String {
    let mut sql = String::new();
    let owner = identifier(OWNER);
    let installer = identifier(installer);
    let _ = write!(
        sql,
        "-- Before `remote init`: the owner of the schema cannot log in, so that row-level security holds\n\
         -- for its functions, too.\n\
         CREATE ROLE {owner} NOLOGIN;\n\
         GRANT {owner} TO {installer};\n\
         CREATE SCHEMA safepoint AUTHORIZATION {owner};\n"
    );
    if members.is_empty() {
        return sql;
    }
    sql.push_str("\n-- After `remote init`: a role per person or job. Set passwords with \\password.\n");
    for member in members {
        let role = identifier(&member.role);
        let rights: Vec<&str> = member.rights.iter().copied().map(RemoteRight::as_str).collect();
        let rights = rights.iter().map(|right| literal(right)).collect::<Vec<_>>().join(", ");
        let line = member.line.map_or_else(|| "NULL".to_owned(), |line| literal(&line.to_string()));
        let _ = write!(
            sql,
            "CREATE ROLE {role} LOGIN;\n\
             INSERT INTO safepoint.members (project, role, may, line)\n    \
             SELECT id, {}, ARRAY[{rights}], {line} FROM safepoint.projects WHERE name = {}\n    \
             ON CONFLICT (project, role) DO UPDATE SET may = excluded.may, line = excluded.line;\n",
            literal(&member.role),
            literal(project.as_str()),
        );
    }
    sql
}

fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let member = MemberGrant { role: "o'\"x".to_owned(), rights: vec![RemoteRight::Read], line: None };
        let sql = roles_sql(&"shop".parse().unwrap(), "me", &[member]);
        assert!(sql.contains("CREATE ROLE \"o'\"\"x\" LOGIN;"), "{sql}");
        assert!(sql.contains("SELECT id, 'o''\"x', ARRAY['read'], NULL"), "{sql}");
    }
}
