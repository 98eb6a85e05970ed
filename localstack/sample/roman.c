/* Prints numbers from 1 to 3999 the way the Romans wrote them. */
#include <stdio.h>
#include <stdlib.h>

static const struct { int value; const char *letters; } parts[] = {
    {1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"}, {100, "C"}, {90, "XC"},
    {50, "L"},   {40, "XL"},  {10, "X"},  {9, "IX"},   {5, "V"},   {4, "IV"}, {1, "I"},
};

int main(int argc, char **argv) {
    for (int at = 1; at < argc; at++) {
        int number = atoi(argv[at]);
        if (number < 1 || number > 3999) {
            fprintf(stderr, "roman: %s is not a number from 1 to 3999\n", argv[at]);
            return 2;
        }
        for (size_t part = 0; number > 0;) {
            if (number >= parts[part].value) {
                fputs(parts[part].letters, stdout);
                number -= parts[part].value;
            } else {
                part++;
            }
        }
        putchar('\n');
    }
    return 0;
}
