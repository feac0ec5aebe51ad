module github.com/ringside-io/ringside

go 1.26.0

require golang.org/x/sys v0.49.0
