// SPDX-License-Identifier: MIT

// Package framing cuts the data of a stream into lines, length-prefixed frames, or
// HTTP/1.1 requests. It is for callbacks that get data in pieces, such as those of
// package event. It starts no goroutine and does not read by itself.
//
// # Pieces
//
// [Frames.Feed] takes each piece as it arrives and calls a function for each complete
// frame. A frame that lies within one piece is passed as a part of that piece, without a
// copy. The start of an incomplete frame is copied and kept. Its end is searched in new
// data only, so the work is linear in the length even if a peer sends single bytes.
// While no data are kept, a Frames keeps at most 4 KiB of memory.
//
// # Limits
//
// Each constructor takes the length of the longest frame. A longer one is a
// [*TooLongError], as soon as that is certain: with a length prefix, when the prefix has
// arrived. After an error Feed returns the same error again: the start of the next frame
// is unknown, and the connection should end.
//
// # Pausing
//
// The function may return [ErrPause]. Feed then keeps the data that follow the frame,
// complete or not, and returns ErrPause; the next Feed, with new data or without,
// continues. Conn.PauseRead alone does not delay the frames of the piece that has arrived.
//
// # HTTP/1.1
//
// [HTTP] is a handler for package event: parsing, pipelining, keep-alive, limits, time
// limits and the end of connections. It is for servers that compute their responses without
// blocking. Request bodies have a Content-Length; chunked ones are refused with 411. For
// everything else in HTTP use net/http, on package unet or net.
package framing
