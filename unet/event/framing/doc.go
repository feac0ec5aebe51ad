// SPDX-License-Identifier: MIT

// Package framing cuts the data of a stream into lines, length-prefixed frames, or
// HTTP/1.1 requests. It is for callbacks that receive data in pieces, such as the
// callbacks of package event. It starts no goroutine and does not read by itself.
//
// # Pieces
//
// [Frames.Feed] takes each piece when it arrives and calls a function for each complete
// frame. A frame that lies within one piece is passed as a part of that piece, without a
// copy. The start of an incomplete frame is copied and kept. The end of the frame is
// searched for in new data only, so the work is linear in the length even if a peer sends
// single bytes. While no data is kept, a Frames holds at most 4 KiB of memory.
//
// # Limits
//
// Each constructor takes the length in bytes of the longest frame. For a longer frame
// Feed returns a [*TooLongError] as soon as the length is known to be too large. With a
// length prefix that is when the prefix has arrived. After an error every later Feed
// returns the same error, because the start of the next frame is unknown. The connection
// should then end.
//
// # Pausing
//
// The function may return [ErrPause]. Feed then keeps the data after the frame and
// returns ErrPause. The next Feed continues, with or without new data. Conn.PauseRead
// alone does not delay the frames of the piece that has arrived.
//
// # HTTP/1.1
//
// [HTTP] returns a handler for package event. It implements parsing, pipelining,
// keep-alive, size limits, time limits and the end of connections. It is for servers that
// compute their responses without blocking. Request bodies must have a Content-Length;
// chunked bodies are refused with status 411. For everything else in HTTP use net/http,
// on package unet or net.
package framing
