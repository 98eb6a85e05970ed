//! What the database itself allows a session of ours, whatever became of the process that opened it.

use crate::Error;
use sqlx::PgConnection;

/// A statement of a call ends before its caller gives up (30 s); a lock is waited for less long than that; a transaction whose
/// process stands still holds its locks for less than a lease.
const SET: &str = "do $limits$
declare limited text;
begin
    foreach limited in array array[
        'statement_timeout = ''20s''', 'lock_timeout = ''5s''', 'idle_in_transaction_session_timeout = ''10s'''
    ] loop
        begin
            execute format('alter database %I set ', current_database()) || limited;
        exception when insufficient_privilege then
            execute format('alter role current_user in database %I set ', current_database()) || limited;
        end;
    end loop;
end $limits$";

/// Sets the limits for the sessions to come in the database of `connection`: statements 20 s, locks 5 s, idle transactions 10 s.
/// Where its role does not own the database, it sets them for its own sessions there.
///
/// The server keeps them, so a pooler between need not know of them. A session that wants others sets them itself.
///
/// # Errors
///
/// [`Error`] if the database does not answer, or refuses.
pub(crate) async fn set(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::raw_sql(SET).execute(connection).await?;
    Ok(())
}
