/* Hashed character n-grams of a subject: counts[] has 1024 places. The prefix before the first blank ("Re:") is left out. */
#include <string.h>

int shingle(const char *line, int n, float *counts) {
    const char *text = strchr(line, ' ') + 1;
    int length = strlen(text), made = 0;
    for (int i = 0; i + n <= length; ++i) {
        unsigned hash = 5381;
        for (int j = 0; j < n; ++j) {
            unsigned char c = text[i + j];
            hash = hash * 33 + ((c >= 'A' && c <= 'Z') ? c + 32 : c);
        }
        counts[hash % 1024] += 1;
        ++made;
    }
    return made;
}
