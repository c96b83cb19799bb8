module squeezy.example/go-hello

go 1.19
