/* Stands in for the CLI under load: 200 events, 2 ms apart. In C, because a stand-in in Python
   takes 30 ms to start and would measure itself. */
#include <stdio.h>
#include <time.h>

int main(void) {
    const struct timespec pause = {0, 2000000};
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("{\"type\":\"init\",\"session_id\":\"load\",\"model\":\"stand-in\"}");
    for (int number = 0; number < 200; number++) {
        nanosleep(&pause, NULL);
        printf("{\"type\":\"message\",\"role\":\"assistant\",\"delta\":true,"
               "\"content\":\"word %d of a story \"}\n", number);
    }
    puts("{\"type\":\"result\",\"status\":\"success\",\"stats\":{}}");
    return 0;
}
