module github.com/ringside-io/ringside/referees

go 1.26.0

require (
	github.com/ringside-io/ringside v0.1.0
	github.com/ringside-io/ringside/sqlitevfs v0.1.0
)

require github.com/hanwen/go-fuse/v2 v2.12.1 // indirect

replace github.com/ringside-io/ringside => ../

replace github.com/ringside-io/ringside/sqlitevfs => ../sqlitevfs
