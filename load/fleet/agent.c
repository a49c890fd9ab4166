/* Stands in for the CLI on a worker: LOAD_EVENTS events, LOAD_PAUSE_MS apart. Each carries its number
   and the time at which it was written, in nanoseconds, so that its reader knows how old it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int setting(const char *name, int otherwise) {
    const char *given = getenv(name);
    return given ? atoi(given) : otherwise;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("0.61.0"); /* A worker asks before it takes jobs. */
        return 0;
    }
    const int events = setting("LOAD_EVENTS", 100), pause_ms = setting("LOAD_PAUSE_MS", 20);
    const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("{\"type\":\"init\",\"session_id\":\"load\",\"model\":\"stand-in\"}");
    for (int number = 0; number < events; number++) {
        struct timespec now;
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_REALTIME, &now);
        printf("{\"type\":\"message\",\"role\":\"assistant\",\"delta\":true,"
               "\"content\":\"%d %ld%09ld word of a story\"}\n",
               number, (long)now.tv_sec, now.tv_nsec);
    }
    puts("{\"type\":\"result\",\"status\":\"success\",\"stats\":{}}");
    return 0;
}
