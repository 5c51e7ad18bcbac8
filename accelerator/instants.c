/* Dates and instants as texts, in the form that Spanner writes. */

#include "accelerator.h"

static int number_of(const char *text, int digits, int *out) {
    *out = 0;
    for (; digits; digits--, text++) {
        if (*text < '0' || *text > '9') return UNUSUAL;
        *out = *out * 10 + (*text - '0');
    }
    return DONE;
}

int days_of(const char *text, int64_t *days) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!number_of(text, 4, &year) || text[4] != '-' || !number_of(text + 5, 2, &month) ||
        text[7] != '-' || !number_of(text + 8, 2, &day) || year < 1 || month < 1 || month > 12)
        return UNUSUAL;
    int is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day < 1 || day > lengths[month - 1] + (month == 2 && is_leap)) return UNUSUAL;
    /* Years begin in March here, so that a leap day ends one; 719,468 days lead from March of the
       year 0 to 1970. */
    int from_march = month > 2 ? month - 3 : month + 9;
    int64_t past = month > 2 ? year : year - 1;
    int64_t of_year = (153 * from_march + 2) / 5 + day - 1;
    *days = past * 365 + past / 4 - past / 100 + past / 400 + of_year - 719468;
    return DONE;
}

int instant_of(const char *text, Py_ssize_t size, int64_t *seconds, int *nanoseconds) {
    int64_t days;
    int hour, minute, second, fraction = 0;
    if (size < 20 || size == 21 || size > 30 || text[size - 1] != 'Z' || !days_of(text, &days) ||
        text[10] != 'T' || !number_of(text + 11, 2, &hour) || text[13] != ':' || hour > 23 ||
        !number_of(text + 14, 2, &minute) || text[16] != ':' || minute > 59 ||
        !number_of(text + 17, 2, &second) || second > 59)
        return UNUSUAL;
    if (size > 20) {
        int digits = (int)size - 21;
        if (text[19] != '.' || !number_of(text + 20, digits, &fraction)) return UNUSUAL;
        for (; digits < 9; digits++) fraction *= 10;
    }
    *seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    *nanoseconds = fraction;
    return DONE;
}
