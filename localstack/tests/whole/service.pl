# A service for previews: says what it is asked for and hello, echoes line by line, dies when told to.
use strict;
use IO::Socket::INET;

$| = 1;
$SIG{CHLD} = 'IGNORE';
my $boss = $$;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ENV{PORT}, Listen => 64, ReuseAddr => 1)
    or die "no port: $!\n";
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
    my $body = "hello from $ENV{WORD}\n";
    print $user "HTTP/1.1 $status\r\ncontent-length: ", length $body, "\r\nconnection: close\r\n\r\n$body";
    exit;
}
