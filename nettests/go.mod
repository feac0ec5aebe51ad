module github.com/ringside-io/ringside/nettests

go 1.26.0

require github.com/ringside-io/ringside v0.0.0

require (
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/ringside-io/ringside => ../
