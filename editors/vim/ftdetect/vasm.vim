" Programs of Tilus VM, and what they include.
autocmd BufRead,BufNewFile *.vasm,*.vasminc setfiletype vasm
