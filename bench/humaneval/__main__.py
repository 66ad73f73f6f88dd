from bench.humaneval.command import main

main()
