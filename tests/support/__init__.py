"""What tests share: waits, child processes, scripted peers, servers."""
