"""`assert_crash_safe`: show that a workflow comes to the same end whatever goes wrong on the way.

faults     what may go wrong, drawn from a seed; fewer of them as long as it still fails
cast       the code that takes part: workflows by name, functions of activities
striking   when the process of a run dies
grounds    the store of one run, and what a crash leaves of it
faulty     a world in which chosen things go wrong
judging    what a run must not do
rehashing  histories replayed by a process with another hash seed
proving    the runs one after the other, and the report
"""
