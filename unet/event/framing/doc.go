// SPDX-License-Identifier: MIT

// Package framing cuts the data of a stream into lines, into frames with a length before
// them, and into requests of HTTP/1.1. It is for callbacks that get data in pieces, as
// those of package event do; it starts no goroutine and reads from nothing.
//
// # Pieces
//
// [Frames.Feed] takes each piece as it arrives and calls a function for each complete
// frame. A frame that lies within one piece is a part of that piece and is not copied.
// The start of one that is not complete is copied and kept; its end is looked for in new
// data only, so that a peer that sends single bytes costs no more than they do. When
// nothing is kept, no more than 4 KiB of memory are.
//
// # Limits
//
// Each constructor takes the length of the longest frame. A longer one is a
// [*TooLongError], as soon as that is certain: for a length before the frame, when the
// length has arrived. After an error Feed returns the same error again: where the next
// frame begins is not known, and the connection should end.
//
// # Pausing
//
// The function may return [ErrPause]. Feed then keeps what follows the frame, complete or
// not, and returns ErrPause; the next Feed, with new data or with none, continues.
// Conn.PauseRead alone does not hold up the frames of the piece that has arrived.
//
// # HTTP/1.1
//
// [HTTP] is a handler for package event: parsing, pipelining, keep-alive, limits, time
// limits and the end of connections. It is for servers whose answers are computed at
// once. Request bodies have a Content-Length; chunked ones are refused with 411. For
// everything else that HTTP has there is net/http, on package unet or net.
package framing
