"""A Postgres's address in two parts: what anybody may see, which is a parameter, and the login, which is a secret."""

from urllib.parse import parse_qs, unquote, urlsplit

from ops.account import Stop

# What libpq's addresses may have behind the question mark, and a parameter must not.
LOGIN = {"user", "password", "passfile", "sslpassword"}


def split(url):
    """`url`, without a login, `username` and `password`, as the functions read them; refuses an address without all of them."""
    found = urlsplit(url)
    login, at, host = found.netloc.rpartition("@")
    name, colon, password = login.partition(":")
    if found.scheme not in {"postgres", "postgresql"} or not host or len(found.path) < 2:
        raise Stop("what --database-url-file names is not postgres://NAME:PASSWORD@HOST/DATABASE", 2)
    if not (at and name and colon and password) or LOGIN & set(parse_qs(found.query, keep_blank_values=True)):
        raise Stop("the database's name and password must stand before the host: postgres://NAME:PASSWORD@HOST/DATABASE", 2)
    rest = f"?{found.query}" if found.query else ""
    return {"url": f"postgres://{host}{found.path}{rest}", "username": unquote(name), "password": unquote(password)}
