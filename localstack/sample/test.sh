# Each line: a number, and how it is written.
failed=0
while read -r number expected; do
    got=$(./roman "$number")
    if [ "$got" = "$expected" ]; then
        echo "ok   $number is $got"
    else
        echo "FAIL $number is $got, expected $expected"
        failed=1
    fi
done <<'CASES'
1 I
4 IV
9 IX
40 XL
1987 MCMLXXXVII
2026 MMXXVI
3999 MMMCMXCIX
CASES
./roman 4000 2>/dev/null && { echo "FAIL 4000 is accepted"; failed=1; }
exit $failed
