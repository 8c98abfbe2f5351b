"""Running other people's code: which tasks there are, and how one execution is run and judged.

A runner knows how to run a function and gives an outcome; it never sees a store. The pump knows the store and no
function. Between them stand assignments and outcomes.
"""
