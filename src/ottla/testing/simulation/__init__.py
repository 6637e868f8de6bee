"""The outside world in memory: time and a disk that pass, break and recover on command, repeatably
for a seed."""
