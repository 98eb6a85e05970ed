# A service for previews: says what it is asked for and hello, echoes line by line, reaches out and dies when told to.
use strict;
use IO::Socket::INET;

$| = 1;
$SIG{CHLD} = 'IGNORE';
my $boss = $$;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ENV{PORT}, Listen => 64, ReuseAddr => 1)
    or die "no port: $!\n";
# What the proxy answers to a connection to somebody.
sub reached {
    my ($whom) = @_;
    my ($proxy) = ($ENV{HTTPS_PROXY} // '') =~ m{//([^/]+)} or return "no proxy\n";
    my $out = IO::Socket::INET->new(PeerAddr => $proxy, Timeout => 5) or return "nobody there\n";
    print $out "CONNECT $whom HTTP/1.1\r\nHost: $whom\r\n\r\n";
    $out->flush;
    return <$out> // "no answer\n";
}

print "listening with $ENV{TOKEN}\n";
while (1) {
    my $user = $listener->accept or next;
    next if fork;
    $user->autoflush(1);
    my ($path) = (<$user> // '') =~ /^GET (\S+)/;
    print "asked for $path\n";
    while (my $head = <$user>) { last if $head =~ /^\r?$/ }
    if ($path eq '/echo') {
        print $user "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        while (my $line = <$user>) { print $user $line }
        exit;
    }
    kill 'KILL', $boss if $path eq '/die';
    my $status = $path eq '/sick' ? '503 Sick' : '200 OK';
    my $body = $path =~ m{^/out/(.+)} ? reached($1) : "hello from $ENV{WORD}\n";
    print $user "HTTP/1.1 $status\r\ncontent-length: ", length $body, "\r\nconnection: close\r\n\r\n$body";
    exit;
}
