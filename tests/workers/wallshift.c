/* wallshift: the wall clock of one process, moved from outside while it runs. For test_faked_clock.py.
 *
 * The file named by WALLSHIFT holds one 64-bit number: nanoseconds to add to CLOCK_REALTIME. It is mapped once, so
 * whoever writes it steps the clock at once. Every other clock is the machine's, as when an administrator sets the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void attach(void)
{
    const char *name = getenv("WALLSHIFT");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *place = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (place != MAP_FAILED)
        shift = place;
}

int clock_gettime(clockid_t which, struct timespec *at)
{
    const int64_t second = 1000000000;
    int failed = syscall(SYS_clock_gettime, which, at);
    if (failed || which != CLOCK_REALTIME || !shift)
        return failed;
    int64_t moved = at->tv_sec * second + at->tv_nsec + *shift;
    at->tv_sec = moved / second;
    at->tv_nsec = moved % second;
    return 0;
}
